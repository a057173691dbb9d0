//! Classes of characters, as the regular expressions of tokenizers have them.

use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// A letter: `\p{L}`.
pub(crate) fn is_letter(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_alphabetic(),
        false => c.general_category_group() == GeneralCategoryGroup::Letter,
    }
}

/// A number: `\p{N}`.
pub(crate) fn is_number(c: char) -> bool {
    match c.is_ascii() {
        true => c.is_ascii_digit(),
        false => c.general_category_group() == GeneralCategoryGroup::Number,
    }
}

/// A character of a word: `\w`.
pub(crate) fn is_word(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_alphanumeric() || c == '_';
    }
    c.is_alphabetic()
        || is_mark(c)
        || matches!(
            c.general_category(),
            GeneralCategory::DecimalNumber | GeneralCategory::ConnectorPunctuation
        )
        || matches!(c, '\u{200c}' | '\u{200d}')
}

/// A combining mark: `\p{M}`.
pub(crate) fn is_mark(c: char) -> bool {
    c.general_category_group() == GeneralCategoryGroup::Mark
}

/// A mark without width of its own, such as an accent: `\p{Mn}`.
pub(crate) fn is_accent(c: char) -> bool {
    c.general_category() == GeneralCategory::NonspacingMark
}

/// Punctuation as BERT sees it: every ASCII character that is no letter, digit or space, and `\p{P}`.
pub(crate) fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// A control character that BERT drops: tabs and line breaks are spaces to it.
pub(crate) fn is_control(c: char) -> bool {
    !matches!(c, '\t' | '\n' | '\r')
        && matches!(
            c.general_category(),
            GeneralCategory::Control | GeneralCategory::Format | GeneralCategory::PrivateUse
        )
}

/// A character of Chinese, Japanese kanji or Korean hanja, each of which is a word to BERT.
pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(
        u32::from(c),
        0x4E00..=0x9FFF
            | 0x3400..=0x4DBF
            | 0x20000..=0x2A6DF
            | 0x2A700..=0x2B73F
            | 0x2B740..=0x2B81F
            | 0x2B920..=0x2CEAF
            | 0xF900..=0xFAFF
            | 0x2F800..=0x2FA1F
    )
}
