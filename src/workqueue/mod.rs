//! A queue of keys in which no key is worked on twice at once and repeats fall together.
