"""Chat models: the protocol, the OpenAI-compatible client, images, prices."""
