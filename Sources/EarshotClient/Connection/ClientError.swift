internal import EarshotLoop

/// Failure to create a client or to accept a request.
public struct ClientError: Error, Equatable, CustomStringConvertible {
    /// Kind of failure. Later versions may add codes.
    public struct Code: Hashable, Sendable {
        let name: String

        /// The request exceeds a limit of the protocol; the description states which.
        public static let invalidRequest = Code(name: "invalid-request")
        /// The runtime or spool folder is unusable.
        public static let folder = Code(name: "folder")
        /// A path exceeds the length of a socket address.
        public static let pathTooLong = Code(name: "path-too-long")
        /// A key file is unusable.
        public static let key = Code(name: "key")
        /// libzmq, which connections over a network need, is missing or unusable.
        public static let library = Code(name: "library")
        /// No bus accepts the client's key, or its server key is wrong.
        public static let refused = Code(name: "refused")
    }

    /// Kind of failure.
    public let code: Code
    /// Text for users. It may contain paths of this machine, but no text of a peer.
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        self.description = description
    }

    init(_ error: FolderError) { self.init(.folder, error.description) }
}
