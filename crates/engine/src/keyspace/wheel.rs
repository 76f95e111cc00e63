//! stub
use super::Millis;
pub(crate) struct Wheel;
impl Wheel {
    pub(crate) fn new() -> Self {
        Self
    }
    pub(crate) fn hint(&mut self, _: u32, _: Millis, _: u16, _: Millis) -> u16 {
        0
    }
    pub(crate) fn rehint(&mut self, _: u32, _: Millis, _: u16, _: Millis) -> u16 {
        0
    }
    pub(crate) fn advance(&mut self, _: Millis, _: usize, _: &mut Vec<u32>) -> bool {
        false
    }
    pub(crate) fn len(&self) -> usize {
        0
    }
    pub(crate) fn is_empty(&self) -> bool {
        true
    }
    pub(crate) fn drain_some(&mut self, _: usize, _: &mut Vec<u32>) {}
    pub(crate) fn next_deadline(&self, _: Millis) -> Option<Millis> {
        None
    }
}
