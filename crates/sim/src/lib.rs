//! corelane-sim
