"""What runs inside a box, on the standard library alone: it is shown to the box as the package ``inside``."""

WORK = "/tmp/work"
"""The folder in which every run begins."""
MAIN = "main.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "box",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip
