/// Numbers of a session's messages. They rise strictly, so that no message is carried out twice.
struct MessageNumbers {
    /// Number of the last message that was carried out or is being carried out; 0 before the first.
    private(set) var lastNumber: UInt64 = 0
    /// Number of the message that is being carried out and has no answer yet; 0 for none.
    private(set) var currentNumber: UInt64 = 0
    /// Number of messages before that one whose answers are not due yet.
    private(set) var pendingCount = 0

    /// Begins a message.
    ///
    /// - Parameter handle: its number; nil for a message without one.
    /// - Returns: whether the number is above all earlier ones.
    mutating func begin(_ number: UInt64?) -> Bool {
        currentNumber = 0
        guard let number else { return true }
        guard number > lastNumber else { return false }
        (lastNumber, currentNumber) = (number, number)
        return true
    }

    /// Takes the number of the present message for its answer, which is due.
    mutating func take() -> UInt64 {
        defer { currentNumber = 0 }
        return currentNumber
    }

    /// Takes the number of the present message, which is answered later.
    mutating func takeForLater() -> UInt64 {
        if currentNumber > 0 { pendingCount += 1 }
        return take()
    }

    /// The answer to an earlier message is due.
    mutating func answered(_ number: UInt64) {
        if number > 0 { pendingCount -= 1 }
    }
}

/// A message that is answered later: its sender, and its number, which is 0 for a message without one.
struct Requester: Equatable {
    let session: GenerationalHandle<ClientSession>
    let number: UInt64
}

/// An asker whose session lives.
struct LiveRequester {
    let client: Handle<ClientSession>
    let number: UInt64
}
