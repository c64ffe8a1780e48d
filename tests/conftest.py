"""Strict encoders for all tests: in this process, and in the brokers and commands that it starts."""

import os

os.environ["ANABRANCH_STRICT"] = "1"  # before anything imports the encoder, which decides by it
