//! The public interface of kiln-data against sound, broken and hostile input.

mod batches;
mod cifar;
mod clips;
mod common;
mod conll;
mod csv;
mod damaged;
mod datasets;
mod device;
mod idx;
mod images;
mod loader;
mod objects;
mod pairs;
mod resident;
mod sprites;
mod squad;
mod text;
mod tokens;
mod transforms;
