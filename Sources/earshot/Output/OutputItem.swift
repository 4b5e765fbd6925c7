/// Item of a list whose body is written.
struct OutputItem {
    var entry: ListEntry
    /// Index in the list, from 1.
    var index: Int
    /// Reserved path below the output directory; nil if the response or its arrival determines it.
    var name: String?
    /// File that the body continues; nil for a complete body.
    var partial: ExistingFile?
}
