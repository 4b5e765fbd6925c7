"""Benchmark of Earshot and its alternatives, side by side: bin/bench."""
