import EarshotWire
import Testing

/// Legible parts of malformed messages of a broker.
@Suite struct BrokerFragmentTests {
    private func read(_ head: String) -> BrokerFragment { BrokerFragment(head: Array(head.utf8)) }

    @Test func `legible words and the sequence number are read`() {
        let fragment = read("RESULT page/1 2 x y\nseq: 1\nseq:  7 \nno field\n\nseq: 9\n")
        #expect(fragment.verb == "RESULT")
        #expect(fragment.handler?.description == "page/1")
        #expect(fragment.request?.description == "2")
        #expect(fragment.sequence == 7)
    }

    @Test(arguments: ["", "\n", " ", "\u{0} \u{0}", "RESULT / ", "seq:", "\nseq: x", "A\nseq:", "A\nseq: 1 2"])
    func `illegible parts are nil`(head: String) {
        let fragment = read(head)
        #expect(fragment.handler == nil && fragment.request == nil && fragment.sequence == nil)
    }

    @Test func `the number of the answered message is read`() {
        #expect(read("FAILED h 1 x y\nto: 7\n").answeredNumber == 7)
        for head in ["", "OK\n", "OK\nto: x\n", "OK\n\nto: 7\n"] {
            #expect(read(head).answeredNumber == nil, "\(head)")
        }
    }
}
