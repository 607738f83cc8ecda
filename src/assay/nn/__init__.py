"""Neural networks shared by rooms: a small trainer, nets. torch is imported only when asked for."""
