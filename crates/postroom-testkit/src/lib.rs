//! Real services started privately, contract suites and faults for Postroom's own tests.
