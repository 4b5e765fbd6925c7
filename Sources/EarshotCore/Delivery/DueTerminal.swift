/// Entry of a `DeliveryWindow`, in four bytes: a request, a compact failure, or a withdrawn terminal.
struct DueTerminal: Hashable {
    enum Kind: Equatable {
        /// Terminal of this interest, which was sent without waiting for room.
        case uncountedTerminal(Handle<Interest>)
        /// Terminal of this interest, whose outcome the window counts.
        case countedTerminal(Handle<Interest>)
        /// Failure that needs no record of its request. The window counts its outcome.
        case compactFailure(Handle<CompactFailure>)
        /// Withdrawn terminal whose sequence number stays in use.
        case withdrawn
    }

    static let withdrawn = DueTerminal(number: 0, kind: 3)

    /// Number of the record, which is below 2^29, and in the last two bits the kind.
    private let packedNumberAndKind: Int32

    private init(number: Int32, kind: Int32) {
        packedNumberAndKind = number << 2 | kind
    }

    init(uncounted interest: Handle<Interest>) {
        self.init(number: interest.recordNumber, kind: 0)
    }

    init(counted interest: Handle<Interest>) {
        self.init(number: interest.recordNumber, kind: 1)
    }

    init(compact failure: Handle<CompactFailure>) {
        self.init(number: failure.recordNumber, kind: 2)
    }

    /// Request with the outcome; nil for a compact failure and a withdrawn terminal.
    var interest: Handle<Interest>? {
        switch kind {
        case .uncountedTerminal(let interest), .countedTerminal(let interest): interest
        case .compactFailure, .withdrawn: nil
        }
    }

    var kind: Kind {
        let number = packedNumberAndKind >> 2
        return switch packedNumberAndKind & 3 {
        case 0: .uncountedTerminal(Handle(indexInSlab: number))
        case 1: .countedTerminal(Handle(indexInSlab: number))
        case 2: .compactFailure(Handle(indexInSlab: number))
        default: .withdrawn
        }
    }
}
