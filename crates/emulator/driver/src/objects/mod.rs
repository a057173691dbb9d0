//! The objects of the driver: contexts, streams, modules and the others that a handle stands for, as data. The calls that
//! work on them are in the files of the same names beside this folder.

pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod host_access;
pub(crate) mod library;
pub(crate) mod linker;
pub(crate) mod module;
pub(crate) mod stream;
pub(crate) mod work;
