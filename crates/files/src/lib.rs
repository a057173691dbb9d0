//! Files that users name. They are opened when they are regular files and nothing else; they are written whole or not at all,
//! with an error that says what to do about a full disk; and text that comes from them, or from their names, is shown in
//! messages so that it cannot steer a terminal or fill it.

mod error;
mod folder;
mod kind;
mod open;
mod shown;
mod temporary;
mod write;

pub use error::{FileError, check_size};
pub use folder::{Folder, is_unlockable};
pub use kind::kind_of;
pub use open::{NotRegular, open_regular};
pub use shown::{Shown, is_printable, shown, shown_path};
pub use write::{check_writable, write_atomic};
