//! The networks, by the table and at small sizes. One program for all: each that has the table of networks in it takes long to compile.

mod bert_heads;
mod detection;
mod detectors;
mod golden;
mod images;
mod losses;
mod models;
mod published;
mod seq2seq;
mod speech;
mod videos;
