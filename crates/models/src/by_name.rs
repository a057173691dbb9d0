//! Values that are written by their names: on command lines, in configuration files, in messages.

/// Implements `FromStr`, `Display` and serde's traits for enums with `ALL`, `name` and `from_name`.
macro_rules! by_name {
    ($($kind:ty),*) => {$(
        impl std::str::FromStr for $kind {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                <$kind>::from_name(name).ok_or_else(|| {
                    format!("`{}` is none of {}", name.escape_debug(), <$kind>::ALL.map(|k| k.name()).join(", "))
                })
            }
        }

        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

by_name!(crate::Model, crate::OptimizerKind, crate::ScheduleKind);

#[cfg(test)]
mod tests {
    use crate::{Model, OptimizerKind, ScheduleKind};

    #[test]
    fn names_are_read_back() {
        for model in Model::ALL {
            assert_eq!(model.name().parse(), Ok(model));
            let json = serde_json::to_string(&model).unwrap();
            assert_eq!(json, format!("\"{model}\""));
            assert_eq!(serde_json::from_str::<Model>(&json).unwrap(), model);
        }
        let error = "Adam".parse::<OptimizerKind>().unwrap_err();
        assert_eq!(
            error,
            "`Adam` is none of sgd, adam, adamw, rmsprop, adagrad, adadelta, adamax, nadam, radam, lion, lamb"
        );
        let error = serde_json::from_str::<ScheduleKind>("\"linear\"").unwrap_err();
        assert!(
            error.to_string().contains("constant, cosine, warmup-cosine, thirds"),
            "{error}"
        );
    }
}
