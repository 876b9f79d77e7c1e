//! The `Agent` type: its fields, its defaults and its rules. Knows nothing but the type; no I/O.
