//! corelane-resp
