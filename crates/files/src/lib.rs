//! Files that users name. They are opened when they are regular files and nothing else, and text that comes from them, or
//! from their names, is shown in messages so that it cannot steer a terminal or fill it.

mod open;
mod shown;

pub use open::{NotRegular, open_regular};
pub use shown::{Shown, is_printable, shown, shown_path};
