"""Benchmarks: the data, rules and scores of others, for any policy of ours."""
