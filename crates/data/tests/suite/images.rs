//! PNG and JPEG.
