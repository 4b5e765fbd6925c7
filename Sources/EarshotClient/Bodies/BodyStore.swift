/// Consumer of a connection that stores bodies in files of its own, and follows them while they arrive.
package protocol BodyStore: AnyObject {
    /// Returns the file for the body of a terminal, whose delivery follows with the last byte.
    ///
    /// Called in a pass of the connection, which must not be closed here.
    func makeFile(for delivery: DeliveredTerminal) -> BodyStoreFile

    /// Handles that the first `bytes` bytes of that body are in the file.
    func received(_ bytes: Int, of delivery: DeliveredTerminal)
}

/// File of a ``BodyStore``.
package enum BodyStoreFile {
    /// Descriptor of an empty file for reading and writing, which the connection closes.
    case open(Int32)
    /// The file could not be created, or the body is not wanted: the `errno` value.
    case none(Int32)
}
