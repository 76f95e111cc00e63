//! corelane-engine
