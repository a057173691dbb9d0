//! Files at paths that users give. Only regular files are opened. A file is written as a whole or not at all, and the
//! error of a full disk tells how much space is missing. Text from files and file names is escaped and shortened before
//! it is shown in messages.

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
