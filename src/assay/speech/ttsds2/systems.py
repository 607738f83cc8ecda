"""Systems that speak: a command line, a speech endpoint, a stand-in. Each makes the bytes of a recording of a text."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import tempfile
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from assay.core.errors import DataError, ProviderError, UsageError


@runtime_checkable
class Speaker(Protocol):
    """A text-to-speech system."""

    name: str

    async def speak(self, text: str, *, language: str = "en", voice: Path | None = None) -> bytes:
        """The recording of a text (wav, flac, ogg or mp3), in the voice of a recording where the system can."""
        ...


class CommandSpeaker:
    """A program that writes a wav file.

    Parameters
    ----------
    command
        The command line; ``{text}``, ``{textfile}``, ``{out}``, ``{language}`` and ``{voice}`` are filled in as whole
        arguments or parts of them. Nothing goes through a shell. Without ``{text}`` and ``{textfile}`` the text is
        given on the standard input.
    timeout
        Seconds for one text.
    """

    def __init__(self, command: str, *, name: str | None = None, timeout: float = 60.0) -> None:
        self.command = shlex.split(command)
        if not self.command or not any("{out}" in part for part in self.command):
            raise UsageError(f"The command {command!r} must say where the recording goes: {{out}}.")
        self.name = name or f"command:{self.command[0]}"
        self.timeout = timeout

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {"name": self.name, "kind": "speech", "command": " ".join(self.command)}

    async def speak(self, text: str, *, language: str = "en", voice: Path | None = None) -> bytes:
        """See `Speaker`.

        Raises
        ------
        DataError
            The program fails, takes too long, or writes nothing.
        """
        with tempfile.TemporaryDirectory(prefix="assay-speech-") as folder:
            out, said = Path(folder, "out.wav"), Path(folder, "text.txt")
            said.write_text(text, encoding="utf-8")
            places = {"text": text, "textfile": said, "out": out, "language": language, "voice": voice or ""}
            given = any("{text}" in part or "{textfile}" in part for part in self.command)
            arguments = [_filled(part, places) for part in self.command]
            try:
                process = await asyncio.create_subprocess_exec(
                    *arguments,
                    stdin=asyncio.subprocess.DEVNULL if given else asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise UsageError(f"The program {arguments[0]!r} cannot be started ({error.strerror}).") from None
            try:
                _, told = await asyncio.wait_for(
                    process.communicate(None if given else text.encode()), timeout=self.timeout
                )
            except TimeoutError:
                # What the program started holds its pipe open: all of the session go.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
                raise DataError(f"{self.name} took more than {self.timeout:g} s for {text[:40]!r}.") from None
            if process.returncode != 0 or not out.is_file() or not out.stat().st_size:
                reason = told.decode(errors="replace").strip().splitlines()[-1:] or [f"status {process.returncode}"]
                raise DataError(f"{self.name} spoke nothing for {text[:40]!r} ({reason[0][:200]}).")
            return out.read_bytes()


def _filled(part: str, places: dict[str, Any]) -> str:
    for name, value in places.items():
        if part == f"{{{name}}}":
            return str(value)
        if name != "text":
            part = part.replace(f"{{{name}}}", str(value))
    return part


class EndpointSpeaker:
    """An OpenAI-compatible speech endpoint, ``POST base_url/audio/speech``.

    Parameters
    ----------
    model, voice
        Sent as they are.
    base_url
        With the version, ``https://api.openai.com/v1`` say.
    key
        Name of the environment variable with the key; empty = no key is sent.
    timeout
        Seconds for one text.
    """

    def __init__(
        self, model: str, *, voice: str = "alloy", base_url: str = "https://api.openai.com/v1",
        key: str = "OPENAI_API_KEY", timeout: float = 120.0, tries: int = 3,
    ) -> None:  # fmt: skip
        self.model, self.voice, self.base_url = model, voice, base_url.rstrip("/")
        self.key, self.timeout, self.tries = key, timeout, tries
        self.name = f"speech:{model}/{voice}"

    def describe(self) -> dict[str, Any]:
        """Facts for ``run.json``."""
        return {"name": self.name, "kind": "speech", "model": self.model, "voice": self.voice, "address": self.base_url}

    async def speak(self, text: str, *, language: str = "en", voice: Path | None = None) -> bytes:
        """See `Speaker`; the endpoint has voices of its own, so ``voice`` is not sent.

        Raises
        ------
        ProviderError
            No recording after all tries, or a refusal, which stops the run.
        """
        import aiohttp

        headers = {}
        if self.key:
            secret = os.environ.get(self.key)
            if not secret:
                raise UsageError(f"Set {self.key} to the key of {self.base_url}, or give key= for none.")
            headers["Authorization"] = f"Bearer {secret}"
        body = {"model": self.model, "voice": self.voice, "input": text, "response_format": "wav"}
        told = ""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=self.timeout)) as session:
            for attempt in range(self.tries):
                if attempt:
                    await asyncio.sleep(2**attempt / 4)
                try:
                    async with session.post(f"{self.base_url}/audio/speech", json=body, headers=headers) as reply:
                        data = await reply.read()
                except (aiohttp.ClientError, TimeoutError) as error:
                    told = str(error) or type(error).__name__
                    continue
                if reply.status == 200 and data:
                    return data
                told = f"status {reply.status}: {data[:200].decode(errors='replace')}"
                if reply.status in (401, 403, 404):
                    raise ProviderError(f"{self.base_url} refuses ({told}).", retryable=False, fatal=True)
                if 400 <= reply.status < 500 and reply.status != 429:
                    break
        raise ProviderError(f"{self.base_url} gave no recording ({told}).", retryable=True)


class StandInSpeaker:
    """Tones that move like speech and say nothing, for a look at the benchmark without any program installed."""

    name = "method:stand-in"

    def __init__(self, pitch: float = 130.0) -> None:
        self.pitch = pitch

    async def speak(self, text: str, *, language: str = "en", voice: Path | None = None) -> bytes:
        """See `Speaker`."""
        import hashlib
        import io

        import soundfile

        from assay.speech.ttsds2.datasets import RATE
        from assay.speech.ttsds2.noise import stand_in_speech

        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
        stream = io.BytesIO()
        soundfile.write(stream, stand_in_speech(1, seed=seed, pitch=self.pitch)[0][0], RATE, format="WAV")
        return stream.getvalue()


def stand_in(pitch: float = 130.0) -> StandInSpeaker:
    """Made-up tones."""
    return StandInSpeaker(pitch)


def espeak(voice: str = "", timeout: float = 60.0) -> CommandSpeaker:
    """espeak-ng; its voice is the language's unless one is given."""
    return CommandSpeaker(
        f"espeak-ng -v {voice or '{language}'} -w {{out}} -f {{textfile}}", name="espeak-ng", timeout=timeout
    )


def flite(voice: str = "slt", timeout: float = 60.0) -> CommandSpeaker:
    """flite; voices slt, kal, awb, rms."""
    return CommandSpeaker(f"flite -voice {voice} -f {{textfile}} -o {{out}}", name=f"flite-{voice}", timeout=timeout)


def festival(timeout: float = 60.0) -> CommandSpeaker:
    """festival's text2wave with its default voice."""
    return CommandSpeaker("text2wave {textfile} -o {out}", name="festival", timeout=timeout)


def command(line: str, name: str = "", timeout: float = 60.0) -> CommandSpeaker:
    """A command line of your own; see `CommandSpeaker`."""
    return CommandSpeaker(line, name=name or None, timeout=timeout)


def endpoint(
    model: str, voice: str = "alloy", base_url: str = "https://api.openai.com/v1", key: str = "OPENAI_API_KEY"
) -> EndpointSpeaker:
    """An OpenAI-compatible speech endpoint; see `EndpointSpeaker`."""
    return EndpointSpeaker(model, voice=voice, base_url=base_url, key=key)
