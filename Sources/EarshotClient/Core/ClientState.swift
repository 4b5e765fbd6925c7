public import EarshotWire

/// How a client stands with its broker.
public enum ClientState: Equatable, Sendable {
    /// No broker answers. What is wanted is remembered, and asked for when one does.
    case apart
    /// A broker answered; all that was wanted before has been asked for.
    case connected(BrokerInstance)
    /// The broker takes nothing new and will end; what it has not answered goes to the next one.
    case draining
    /// The broker speaks another version of EAR: there is no use in trying again.
    case incompatible
}
