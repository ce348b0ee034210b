"""The operating system: time, randomness, threads, files, processes, and what differs between platforms.

Everything else in holdfast reaches them through these modules, so that a simulator can take their place and a
platform that lacks something is dealt with once.
"""
