//! Recurrent layers, and single steps of them.

mod builder;
mod cell;
mod directions;
mod kinds;

pub use builder::RecurrentBuilder;
pub use cell::{GruCell, LstmCell, RnnCell};
pub use directions::{RecurrentLayers, RecurrentState};
pub use kinds::{Gru, Lstm, Rnn};
