/// Entry of a delivery window, in four bytes.
struct DueTerminal: Hashable {
    enum Place {
        /// In memory, as this interest.
        case memory(Handle<Interest>)
        /// In the shell's file.
        case file(Handle<WaitingTerminal>)
        /// A withdrawn terminal whose sequence number stays in use.
        case hole
    }

    static let hole = DueTerminal(word: .min)

    /// Number of the interest; the complement of the number of a waiting terminal; the least word for a hole.
    private let word: Int32

    init(interest: Handle<Interest>) {
        word = interest.number
    }

    init(waiting: Handle<WaitingTerminal>) {
        word = ~waiting.number
    }

    private init(word: Int32) {
        self.word = word
    }

    var place: Place {
        if word >= 0 { return .memory(Handle(place: word)) }
        return word == .min ? .hole : .file(Handle(place: ~word))
    }
}
