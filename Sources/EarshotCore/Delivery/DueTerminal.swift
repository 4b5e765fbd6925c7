/// Entry of a `DeliveryWindow`, in four bytes: a request, a compact failure, or a withdrawn terminal.
struct DueTerminal: Hashable {
    enum Kind: Equatable {
        /// Terminal of this interest, which was sent without waiting for room.
        case uncounted(Handle<Interest>)
        /// Terminal of this interest, whose outcome the window counts.
        case counted(Handle<Interest>)
        /// Failure that needs no record of its request. The window counts its outcome.
        case compact(Handle<CompactFailure>)
        /// Withdrawn terminal whose sequence number stays in use.
        case withdrawn
    }

    static let withdrawn = DueTerminal(number: 0, kind: 3)

    /// Number of the record, which is below 2^29, and in the last two bits the kind.
    private let word: Int32

    private init(number: Int32, kind: Int32) {
        word = number << 2 | kind
    }

    init(uncounted interest: Handle<Interest>) {
        self.init(number: interest.number, kind: 0)
    }

    init(counted interest: Handle<Interest>) {
        self.init(number: interest.number, kind: 1)
    }

    init(compact failure: Handle<CompactFailure>) {
        self.init(number: failure.number, kind: 2)
    }

    /// Request with the outcome; nil for an owed failure and a withdrawn terminal.
    var interest: Handle<Interest>? {
        switch kind {
        case .uncounted(let interest), .counted(let interest): interest
        case .compact, .withdrawn: nil
        }
    }

    var kind: Kind {
        let number = word >> 2
        return switch word & 3 {
        case 0: .uncounted(Handle(place: number))
        case 1: .counted(Handle(place: number))
        case 2: .compact(Handle(place: number))
        default: .withdrawn
        }
    }
}
