"""The numbers that benchmarks report, one benchmark a module."""
