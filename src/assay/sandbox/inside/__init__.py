"""What runs inside a box, on the standard library alone: it is shown to the box as the package ``inside``."""
