"""Running code that nobody has read: programs of models, submissions, generated tests, judges that came with data."""

from .launch import describe
from .limits import Limits, Result
from .pool import Sandbox, SandboxError
from .programs import Program

__all__ = ["Limits", "Program", "Result", "Sandbox", "SandboxError", "describe"]
