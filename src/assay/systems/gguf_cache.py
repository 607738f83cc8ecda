"""Weights of a GGUF file as a safetensors checkpoint in the cache folder: converted once, loaded in seconds after.

Imported only together with torch.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import time
from pathlib import Path

from assay.core.cache import cache_folder
from assay.core.errors import DataError

log = logging.getLogger("assay.lm")


def checkpoint(gguf: Path, cache: Path | None = None) -> Path:
    """Folder with tokenizer, configuration and float32 weights of ``gguf``, converted if it is not there yet.

    The folder's name holds the digest of the file. It appears by one rename, so processes may race: the first one
    wins and the others use its result.

    Raises
    ------
    DataError
        If the file cannot be read as a GGUF model.
    """
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    parent = (cache or cache_folder()) / "models"
    folder = parent / f"{gguf.stem}-{digest}"
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    log.info("Converting %s once; later starts read %s.", gguf.name, folder)
    work = Path(tempfile.mkdtemp(prefix=".converting-", dir=parent))
    try:
        _convert(gguf, work)
        work.chmod(0o755)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _sweep(parent: Path) -> None:
    """Remove what killed conversions left behind (half a gigabyte each)."""
    for left in parent.glob(".converting-*"):
        if time.time() - left.stat().st_mtime > 3600:
            shutil.rmtree(left, ignore_errors=True)


def _convert(gguf: Path, out: Path) -> None:
    """Write ``out`` without transformers' own GGUF loader, which wants accelerate and refuses to save its result."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    try:
        config = AutoConfig.from_pretrained(**source)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        tensors = load_gguf_checkpoint(str(gguf), return_tensors=True, model_to_load=model)["tensors"]
        tokenizer = AutoTokenizer.from_pretrained(**source)
    except Exception as error:  # a damaged file fails anywhere in the reader
        raise DataError(f"{gguf} is not a GGUF model that transformers can read ({error}).") from error
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ()) if config.tie_word_embeddings else set()
    if set(missing) - tied or unexpected:
        raise DataError(
            f"{gguf} does not hold the weights of its architecture {config.model_type!r}: missing "
            f"{sorted(set(missing) - tied)[:3]}, unexpected {list(unexpected)[:3]}; the file is damaged or too new."
        )
    model.tie_weights()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
