/// Way in which a process gets bodies that the broker has in files.
///
/// The broker can impose ``pull``, for example on a client of another user.
public enum BodyAccess: Sendable {
    /// The process opens the files of the broker.
    case path
    /// The broker sends the bytes, and the process stores them in unnamed files of its own. For a process that cannot
    /// open the broker's files, as in a container.
    case pull
}
