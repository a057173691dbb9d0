//! Images of kernels as a driver gets them, without a driver: for programs that only read them.

use crate::{Program, cubin, fatbin};

impl Program {
    /// Reads the PTX that suits a device of compute capability `sm` (80 for 8.0) best out of a fat binary or a text, and what
    /// machine code beside it says of its kernels.
    ///
    /// # Errors
    /// The reason in words.
    pub fn of_image(image: &[u8], sm: u32) -> Result<Program, String> {
        if image.starts_with(b"\x7fELF") {
            cubin::resources(image);
        }
        if let Some(code) = fatbin::cubin(image, sm) {
            cubin::resources(&code);
        }
        let text = fatbin::ptx(image, sm).map_err(|e| e.to_string())?;
        Program::load(&text).map_err(|e| e.to_string())
    }
}
