"""The tests of prill; `tests.support` has what they, the benchmarks and the examples stand on."""
