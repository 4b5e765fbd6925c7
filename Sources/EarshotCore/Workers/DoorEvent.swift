public import EarshotWire

/// What the supervisor reports to the broker about the HTTP door.
public enum DoorEvent: Equatable, Sendable {
    /// Secret with which the door proves itself.
    case proof(GatewayProof)
    /// Addresses at which it listens: a new process, or none.
    case listening([String])
    /// Its connections now, and its requests and refusals since it listens.
    case counts(connections: Int, requests: Int, refused: Int)

    /// Parses a line; nil for an invalid one.
    public init?(line: String) {
        let words = line.split(separator: " ").map(String.init)
        switch words.first {
        case SupervisorCommand.doorProof:
            guard words.count == 2, let proof = GatewayProof(words[1]) else { return nil }
            self = .proof(proof)
        case SupervisorCommand.doorListening: self = .listening(Array(words.dropFirst()))
        case SupervisorCommand.doorCounts:
            let counts = words.dropFirst().compactMap { Int($0) }
            guard counts.count == 3, counts.allSatisfy({ $0 >= 0 }) else { return nil }
            self = .counts(connections: counts[0], requests: counts[1], refused: counts[2])
        default: return nil
        }
    }
}

/// Latest state of the HTTP door.
public struct DoorReport: Equatable, Sendable {
    package var addresses: [String]
    package var connections = 0
    package var requests = 0
    package var refused = 0
}
