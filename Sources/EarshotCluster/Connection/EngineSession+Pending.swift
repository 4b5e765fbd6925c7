extension EngineSession {
    /// Command of the connection for scripts or for notifications.
    enum Pending: Equatable {
        case authentication
        case role
        case memory
        case load(EngineScript)
        case subscription
        case ping
        case join
        case renewal
        case reap
        /// - isText: whether the text of the script was sent, because the server did not know its digest.
        case batch(EngineBatch, isText: Bool)
    }
}
