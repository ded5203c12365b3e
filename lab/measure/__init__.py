"""Runs examples for measurements, and keeps what came out."""
