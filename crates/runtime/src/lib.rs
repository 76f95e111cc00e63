//! corelane-runtime
