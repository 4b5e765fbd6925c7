"""Measures Earshot and what one would use instead, side by side: bin/bench."""
