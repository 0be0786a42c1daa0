// Grφίe
module {}
