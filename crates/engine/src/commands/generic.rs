//! Keys, whatever their type.

use crate::command::Command;

pub(super) const COMMANDS: &[Command] = &[];
