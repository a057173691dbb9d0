//! The events of a file, as `tensorflow/core/util/event.proto` and `tensorboard/compat/proto/summary.proto` define them.

use crate::histogram::Histogram;
use crate::proto::Message;

/// TensorFlow's number of the dtype of strings.
const DT_STRING: u64 = 7;

/// The content of an event.
pub(crate) enum What<'a> {
    /// The first event of a file.
    Version {
        writer: &'a str,
    },
    /// The version again, and from which step on earlier events no longer count.
    Restart,
    /// A session begins at the step of the event.
    Session,
    Scalar {
        tag: &'a str,
        value: f64,
    },
    Histogram {
        tag: &'a str,
        histogram: &'a Histogram,
    },
    Image {
        tag: &'a str,
        shape: [usize; 3],
        png: &'a [u8],
    },
    Text {
        tag: &'a str,
        text: &'a str,
    },
}

/// The bytes of an event at a step and a time in seconds.
pub(crate) fn encode(wall_time: f64, step: u64, what: &What<'_>) -> Vec<u8> {
    const VERSION: &[u8] = b"brain.Event:2";
    let event = Message::new().double(1, wall_time).int(2, step);
    let summary = |value: Message| Message::new().message(1, value);
    let event = match what {
        What::Version { writer } => {
            let source = Message::new().bytes(1, writer.as_bytes());
            event.chosen_bytes(3, VERSION).message(10, source)
        }
        What::Restart => event.chosen_bytes(3, VERSION),
        What::Session => event.message(7, Message::new().int(1, 1)),
        What::Scalar { tag, value } => {
            let value = Message::new().bytes(1, tag.as_bytes()).chosen_float(2, *value as f32);
            event.message(5, summary(value))
        }
        What::Histogram { tag, histogram } => {
            let histogram = Message::new()
                .double(1, histogram.min)
                .double(2, histogram.max)
                .double(3, histogram.num)
                .double(4, histogram.sum)
                .double(5, histogram.sum_squares)
                .doubles(6, &histogram.limits)
                .doubles(7, &histogram.counts);
            event.message(
                5,
                summary(Message::new().bytes(1, tag.as_bytes()).message(5, histogram)),
            )
        }
        What::Image { tag, shape, png } => {
            let [height, width, channels] = shape.map(|n| n as u64);
            let image = Message::new()
                .int(1, height)
                .int(2, width)
                .int(3, channels)
                .bytes(4, png);
            event.message(5, summary(Message::new().bytes(1, tag.as_bytes()).message(4, image)))
        }
        What::Text { tag, text } => {
            let plugin = Message::new().bytes(1, b"text");
            let shape = Message::new().message(2, Message::new().int(1, 1));
            let tensor = Message::new()
                .int(1, DT_STRING)
                .message(2, shape)
                .chosen_bytes(8, text.as_bytes());
            let value = Message::new()
                .bytes(1, format!("{tag}/text_summary").as_bytes())
                .message(8, tensor)
                .message(9, Message::new().message(1, plugin));
            event.message(5, summary(value))
        }
    };
    event.into_bytes()
}
