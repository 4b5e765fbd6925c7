import EarshotWire
import Testing

@Suite struct BrokerFragmentTests {
    private func read(_ head: String) -> BrokerFragment { BrokerFragment(head: Array(head.utf8)) }

    @Test func `legible words and the sequence number are read`() {
        let fragment = read("RESULT page/1 2 x y\nseq: 1\nseq:  7 \nno field\n\nseq: 9\n")
        #expect(fragment.verb == "RESULT")
        #expect(fragment.handler?.description == "page/1")
        #expect(fragment.request?.description == "2")
        #expect(fragment.sequence == 7)
        #expect(!fragment.isReply)
    }

    @Test(arguments: ["", "\n", " ", "\u{0} \u{0}", "RESULT / ", "seq:", "\nseq: x", "A\nseq:", "A\nseq: 1 2"])
    func `illegible parts are nil`(head: String) {
        let fragment = read(head)
        #expect(fragment.handler == nil && fragment.request == nil && fragment.sequence == nil)
        #expect(!fragment.isReply)
    }

    @Test func `a FAILED is a reply unless it has a sequence number`() {
        #expect(read("FAILED h 1 x y\n").isReply)
        #expect(!read("FAILED h 1 x y\nseq: x\n").isReply)
        for verb in ["ACCEPTED", "REMOVED", "ANSWER", "CHANGED", "ERROR"] { #expect(read(verb).isReply) }
        for verb in ["WELCOME", "RESULT", "PROGRESS", "GOODBYE", "NOVELTY"] { #expect(!read(verb).isReply) }
    }
}
